package sandbox

import (
	"net"

	"golang.org/x/sys/unix"
)

// unacked is how many of the bytes written to conn its peer has not taken yet. A reset throws them away.
func unacked(conn *net.TCPConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var ioctlErr error
	err = raw.Control(func(fd uintptr) { n, ioctlErr = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if err != nil {
		return 0, err
	}
	return n, ioctlErr
}
