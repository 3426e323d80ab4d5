package redistest

import (
	"strings"
	"testing"
)

func TestSlotOf(t *testing.T) {
	for key, want := range map[string]int{
		"":          0,
		"123456789": 0x31c3, // the check value of CRC16 XMODEM
		"foo":       12182,
	} {
		if got := SlotOf(key); got != want {
			t.Errorf("SlotOf(%q) = %d, want %d", key, got, want)
		}
	}
}

func TestSlotOfAgreesWithRedis(t *testing.T) {
	client := connect(t, newServer(t, "cluster-enabled yes"))
	for _, key := range []string{
		"foo", "{tag}a", "a{tag}b", "{}a", "a{}{tag}", "{{tag}}", "{a", "a}", "}{a}", "é\x00\xff", strings.Repeat("x", 1000),
	} {
		want, err := client.ClusterKeySlot(t.Context(), key).Result()
		must(t, err)
		if got := SlotOf(key); int64(got) != want {
			t.Errorf("SlotOf(%q) = %d, want %d", key, got, want)
		}
	}
}
