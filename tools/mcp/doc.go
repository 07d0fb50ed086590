// Package mcp gives agents the tools of MCP servers: programs that are spoken
// to over their standard input and output, and endpoints over streamable HTTP.
// It is the only importer of the MCP SDK.
//
// A Client has one link to each server, or one for each lane. A link makes a
// session when one is needed, and a new one when that is lost: what a session
// was lost to is the failure of the calls that it ran, and of no later one.
// Sessions that fail one after the other are made with growing pauses between.
//
// What a server says of its tools is a claim. Effects come from the operator; a
// description or schema that is not the pinned one is reported, or refused.
//
// A Client and its tools may be used by several goroutines at once. The package
// knows no database: what is kept of definitions is behind Store.
package mcp
