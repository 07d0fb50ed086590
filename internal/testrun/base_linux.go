package testrun

import (
	"os"
	"syscall"
)

// base returns /dev/shm if it has room for databases and can hold programs, or else the system's
// temporary folder.
func base() string {
	const (
		shm     = "/dev/shm"
		room    = 4 << 30 // bytes
		tmpfs   = 0x01021994
		noExec  = 0x8 // ST_NOEXEC
		rwxOnly = 0o2 // others may write: every user may make a folder
	)
	var fs syscall.Statfs_t
	info, err := os.Stat(shm)
	if err != nil || info.Mode().Perm()&rwxOnly == 0 || syscall.Statfs(shm, &fs) != nil {
		return os.TempDir()
	}
	if fs.Type != tmpfs || fs.Flags&noExec != 0 || int64(fs.Bavail)*fs.Bsize < room {
		return os.TempDir()
	}
	return shm
}
