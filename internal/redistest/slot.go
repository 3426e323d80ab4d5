package redistest

import "strings"

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// SlotOf returns the hash slot of a key: the CRC16 (XMODEM) of the key, or of
// its first hash tag if it has one that is not empty, modulo 16384.
func SlotOf(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc) % slots
}
