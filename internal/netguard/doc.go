// Package netguard restricts outgoing connections made on behalf of others to public addresses and to
// hosts that an operator has allowed. It checks the resolved address of each connection, against DNS
// rebinding.
//
// A Dialer is safe for concurrent use.
package netguard
