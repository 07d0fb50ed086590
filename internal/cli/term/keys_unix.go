//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package term

import (
	"os"
	"syscall"
	"unsafe"
)

// singleKeys turns off line buffering and echo of a terminal; a read then times out after 100 ms.
// Keys that send signals still do. ok is false if the file is not a terminal.
func singleKeys(file *os.File) (restore func(), ok bool) {
	var before syscall.Termios
	if !termios(file, getTermios, &before) {
		return nil, false
	}
	raw := before
	raw.Lflag &^= syscall.ICANON | syscall.ECHO
	raw.Cc[syscall.VMIN], raw.Cc[syscall.VTIME] = 0, 1
	if !termios(file, setTermios, &raw) {
		return nil, false
	}
	return func() { termios(file, setTermios, &before) }, true
}

func termios(file *os.File, request uintptr, settings *syscall.Termios) bool {
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(settings)))
	return errno == 0
}
