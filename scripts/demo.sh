#!/usr/bin/env bash
# Shows the whole way of a message: a worker starts on a private database, a
# message goes in, the demo agent's tools run, one reply comes out, and its turn
# is shown. Everything stays in ./.turnkeeper (or $TURNKEEPER_DATA_DIR), so that
# a second run is quicker. Needs the programs in bin/ (or $BIN).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset DATABASE_URL TURNKEEPER_DATABASE_URL # the demo has a database of its own

bin=${BIN:-bin}
data=${TURNKEEPER_DATA_DIR:-./.turnkeeper}
export TURNKEEPER_DATA_DIR=$data
patience=${DEMO_PATIENCE:-300} # seconds for the first start, which may fetch Postgres
question=${*:-What time is it, and which files do you have?}

bold='' dim='' red='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} && ${TERM:-dumb} != dumb ]]; then
	bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'
fi

heading() { printf '\n%s── %s%s\n\n' "$bold" "$1" "$plain"; }
note() { printf '%s%s%s\n' "$dim" "$1" "$plain"; }
run() {
	printf '%s$ %s%s\n' "$dim" "$1" "$plain"
	shift
	"$@"
}
fail() {
	printf '%sdemo: %s%s\n' "$red" "$1" "$plain" >&2
	if [[ -s $log ]]; then
		echo "The worker's last lines:" >&2
		tail -n 20 "$log" >&2
	fi
	exit 1
}

log=$(mktemp "${TMPDIR:-/tmp}/turnkeeper-demo.XXXXXX")
worker=

# The worker ends with the demo, however that ends, and takes its database down.
clean_up() {
	if [[ -n $worker ]]; then
		kill -TERM "$worker" 2>/dev/null || true
		wait "$worker" 2>/dev/null || true
	fi
	rm -f "$log"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

for program in worker enqueue turnctl; do
	[[ -x $bin/$program ]] || fail "$bin/$program is missing: run \"make build\" first"
done

heading "A worker starts"
note "on a private Postgres in $data; the first start makes it"
printf '%s$ worker%s\n' "$dim" "$plain"
TURNKEEPER_LOG_LEVEL=warn TURNKEEPER_LOG_FORMAT=console "$bin/worker" >"$log" 2>&1 &
worker=$!
for ((tenths = 0; ; tenths++)); do
	if grep -q '^worker ready' "$log"; then
		break
	fi
	kill -0 "$worker" 2>/dev/null || {
		worker=
		fail "the worker ended before it was ready"
	}
	((tenths < patience * 10)) || fail "the worker was not ready within $patience seconds"
	sleep 0.1
done
cat "$log"

heading "A message goes in, and its reply comes out"
run "enqueue --agent demo --wait \"$question\"" \
	"$bin/enqueue" --agent demo --wait --wait-timeout 60s "$question" || fail "no good reply came"

heading "What happened: the turn, from the journal"
run "turnctl show latest" "$bin/turnctl" show latest || fail "the turn cannot be shown"

heading "The worker stops"
kill -TERM "$worker"
wait "$worker" || fail "the worker did not end in good order"
worker=
note "Messages, replies and journal stay in the database. Go on with:"
printf '  %s\n' "$bin/worker" "$bin/enqueue --agent demo --wait \"...\"" "$bin/turnctl --help"
