#!/usr/bin/env bash
# Shows the path of a message: starts a worker on a private database, sends a message
# to the demo agent, and prints the reply and the turn. All data stays in
# ./.turnkeeper (or $TURNKEEPER_DATA_DIR), which makes a second run faster. Needs the
# programs in bin/ (or $BIN).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset DATABASE_URL TURNKEEPER_DATABASE_URL # the demo uses a private database

bin=${BIN:-bin}
data=${TURNKEEPER_DATA_DIR:-./.turnkeeper}
export TURNKEEPER_DATA_DIR=$data
patience=${DEMO_PATIENCE:-300} # seconds; the first start may download Postgres
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

# The worker and its database end with the demo, however that ends.
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
note "on a private Postgres in $data, which the first start creates"
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
	"$bin/enqueue" --agent demo --wait --wait-timeout 60s "$question" || fail "no successful reply"

heading "What happened: the turn, from the journal"
run "turnctl show latest" "$bin/turnctl" show latest || fail "turnctl cannot show the turn"

heading "The worker stops"
kill -TERM "$worker"
wait "$worker" || fail "the worker did not stop cleanly"
worker=
note "Messages, replies and journal stay in the database. Continue with:"
printf '  %s\n' "$bin/worker" "$bin/enqueue --agent demo --wait \"...\"" "$bin/turnctl --help"
