// Package setup makes what turns need of settings and agents' files: tools, MCP servers, model providers and
// their context windows, and it checks all of these. A worker and turnctl share it; it links neither
// the HTTP API nor telemetry.
package setup

import _ "time/tzdata" // schedules name time zones, and not every machine has them
