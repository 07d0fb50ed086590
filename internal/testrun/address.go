package testrun

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// ClosedAddress returns an address of this machine that refuses connections until the test ends: no other test's server
// can get its port, as it could get that of a listener that was closed.
func ClosedAddress(t testing.TB) string {
	t.Helper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(os.NewSyscallError("socket", err))
	}
	t.Cleanup(func() { _ = syscall.Close(socket) })
	// It never listens.
	if err := syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(os.NewSyscallError("bind", err))
	}
	name, err := syscall.Getsockname(socket)
	bound, ok := name.(*syscall.SockaddrInet4)
	if err != nil || !ok {
		t.Fatalf("the socket is bound to %v: %v", name, err)
	}
	return fmt.Sprintf("127.0.0.1:%d", bound.Port)
}
