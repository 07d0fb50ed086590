#!/bin/sh
# Files the report on the standard input as reports/KEY.json. A report of that key
# that is already there stays: the call was started before, by a worker that is gone.
set -eu
mkdir -p reports
draft=reports/.$TURNKEEPER_IDEMPOTENCY_KEY.$$
trap 'rm -f "$draft"' EXIT
cat >"$draft"
report=reports/$TURNKEEPER_IDEMPOTENCY_KEY.json
if ln "$draft" "$report" 2>/dev/null; then # whole or not at all, and never over another
	echo "filed as $report"
elif [ -e "$report" ]; then
	echo "filed before as $report"
else
	echo "$report cannot be written" >&2
	exit 1
fi
