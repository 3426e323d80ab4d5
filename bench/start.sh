#!/usr/bin/env bash
#
# Measures the time from the start of a tool until its command runs, on a free lock: redislock run, flock(1), and the
# command by itself. From the repository's root, with a redis-server on PATH: bash bench/start.sh [RUNS]
#
# The command, date, prints when it runs. The shell takes the time before. The three take turns, so that other load of the
# machine affects all of them. The script prints the quartiles in milliseconds.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
runs=${1:-200}
dir=$(mktemp -d)
go build -o "$dir/redislock" ./cmd/redislock
redis-server --port 0 --unixsocket "$dir/redis.sock" --save '' --appendonly no >"$dir/log" &
server=$!
trap 'kill "$server"; rm -rf "$dir"' EXIT
export REDIS_URL=unix://$dir/redis.sock
until redis-cli -s "$dir/redis.sock" ping >/dev/null 2>&1; do sleep 0.05; done

# measure NAME COMMAND... appends the microseconds of one start to a file.
measure() {
	local name=$1 before after
	shift
	before=$(date +%s%N)
	after=$("$@" date +%s%N)
	echo $(((after - before) / 1000)) >>"$dir/$name.us"
}

for _ in $(seq "$runs"); do
	measure bare env
	measure flock flock "$dir/lock"
	measure redislock "$dir/redislock" run -k start --
done
for name in bare flock redislock; do
	sort -n "$dir/$name.us" | awk -v name="$name" '{ a[NR] = $1 } END {
		printf "%-10s %6.2f  %6.2f  %6.2f ms\n", name, a[int(NR/4)+1]/1000, a[int(NR/2)+1]/1000, a[int(3*NR/4)+1]/1000
	}'
done
