package main

import "testing"

const (
	infoBefore = "# Stats\r\ntotal_reads_processed:100\r\n# CPU\r\nused_cpu_sys:1.5\r\nused_cpu_user:2.25\r\n" +
		"used_cpu_sys_children:9\r\n# Commandstats\r\ncmdstat_evalsha:calls=10,usec=70,usec_per_call=7.00\r\n" +
		"cmdstat_info:calls=3,usec=70,usec_per_call=7.00\r\n"
	infoAfter = "total_reads_processed:140\r\nused_cpu_sys:1.75\r\nused_cpu_user:2.5\r\n" +
		"cmdstat_evalsha:calls=30,usec=250,usec_per_call=1\r\ncmdstat_client|tracking:calls=5,usec=1,usec_per_call=1\r\n" +
		"cmdstat_set:calls=10,usec=1,usec_per_call=1\r\ncmdstat_info:calls=4,usec=1,usec_per_call=1\r\n"
)

func TestServerStatsPerLock(t *testing.T) {
	before, err := parseStats(infoBefore)
	if err != nil {
		t.Fatal(err)
	}
	after, err := parseStats(infoAfter)
	if err != nil {
		t.Fatal(err)
	}
	added := after.since(before)
	if added.reads != 40 || added.cpu != 0.5 {
		t.Errorf("reads %v, cpu %v, want 40 and 0.5", added.reads, added.cpu)
	}
	both := serverStats{calls: map[string]float64{}}
	both.add(added)
	both.add(added)
	if both.reads != 80 || both.cpu != 1 || both.calls["evalsha"] != 40 {
		t.Errorf("two servers together: %+v", both)
	}
	f := figures{}
	added.perLock(f, scripts, 10)
	for m, want := range map[string]float64{sent.head: 2, executed.head: 3.5, serverCPU.head: 50_000, scriptTime.head: 18} {
		if f[m] != want {
			t.Errorf("%s = %v, want %v", m, f[m], want)
		}
	}
}

func TestParseStatsReportsWhatItCannotRead(t *testing.T) {
	for _, info := range []string{"used_cpu_sys:much", "cmdstat_set:often", "cmdstat_eval:calls=1,usec=long"} {
		if _, err := parseStats(info); err == nil {
			t.Errorf("parseStats(%q) returned no error", info)
		}
	}
}
