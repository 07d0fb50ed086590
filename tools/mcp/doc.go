// Package mcp gives agents the tools of MCP servers: programs over their
// standard input and output, and endpoints over streamable HTTP. It is the only
// importer of the MCP SDK.
//
// A Client has one link to each server, or one per lane. A link opens a session
// when one is needed, and a new one when that is lost: the loss fails only the
// calls that the session ran. After each further failure in a row it waits
// longer before it opens another session.
//
// A server's description of its tools is not trusted. Effects come from the
// operator; a description or schema that differs from the pinned one is
// reported, or refused.
//
// A Client and its tools are safe for concurrent use. The package does not use
// a database: definitions are stored in a Store, and logins in a LoginStore.
package mcp
