package pg

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// Causes of failed connections that have no SQLSTATE.
const (
	CauseRefused     = "refused"     // nothing listens at the address
	CauseName        = "name"        // the host's name could not be resolved
	CauseUnreachable = "unreachable" // no route to the address
	CauseTimeout     = "timeout"     // nothing answered
	CauseTLS         = "tls"         // no agreement about TLS
	CauseClosed      = "closed"      // the server closed the connection
	CauseURL         = "url"         // the connection string cannot be parsed
)

// Cause returns the SQLSTATE of an error, or one of the causes above; empty: it is another error.
func Cause(err error) string {
	if code := SQLState(err); code != "" {
		return code
	}
	for _, c := range []struct {
		cause string
		holds bool
	}{
		{CauseURL, errors.Is(err, errUnreadableURL)},
		{CauseName, isA[*net.DNSError](err)},
		{CauseRefused, errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)},
		{CauseUnreachable, errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)},
		{CauseTLS, ofTLS(err)},
		{CauseTimeout, errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) || pgconn.Timeout(err) ||
			errors.Is(err, syscall.ETIMEDOUT)},
		{CauseClosed, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err,
			syscall.ECONNRESET)},
	} {
		if c.holds {
			return c.cause
		}
	}
	return ""
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// ofTLS reports whether client and server do not agree about TLS. pgconn has no type for a server that refuses it.
func ofTLS(err error) bool {
	return isA[*tls.CertificateVerificationError](err) || isA[x509.UnknownAuthorityError](err) ||
		isA[x509.HostnameError](err) ||
		isA[tls.RecordHeaderError](err) || isA[tls.AlertError](err) || refusesTLS(err)
}

// refusesTLS looks for the text in pgconn's error, which a connectError has in place of its own.
func refusesTLS(err error) bool {
	connect, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && strings.Contains(connect.Error(), "server refused TLS connection")
}
