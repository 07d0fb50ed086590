// Package setup creates and checks what turns need from settings and agents' files: tools, MCP servers,
// model providers and their context windows. Workers and turnctl share it; it links neither the HTTP API
// nor telemetry.
package setup

import _ "time/tzdata" // for schedules: not every machine has the time zone database
