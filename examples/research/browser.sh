#!/bin/sh
# Starts Playwright's MCP server with the Chromium of this machine.
set -eu
chromium=
for name in chromium chromium-browser google-chrome google-chrome-stable; do
	if chromium=$(command -v "$name"); then break; fi
done
if [ -z "$chromium" ]; then
	echo "no Chromium is installed (Debian and Ubuntu: apt-get install chromium)" >&2
	exit 1
fi
if [ "$(id -u)" = 0 ]; then # Chromium's sandbox does not work as root, for example in a container
	set -- "$@" --no-sandbox
fi
exec node node_modules/@playwright/mcp/cli.js --headless --isolated --executable-path "$chromium" "$@"
