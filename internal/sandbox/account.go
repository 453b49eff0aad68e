package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that PostgreSQL runs as: it refuses to run as root. The zero value is the user of this process.
type account struct {
	credential *syscall.Credential // nil: ourselves
}

// serverAccount chooses postgres or nobody when this process is root.
func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.ParseUint(u.Uid, 10, 32)
		gid, errGID := strconv.ParseUint(u.Gid, 10, 32)
		if errUID == nil && errGID == nil && uid != 0 {
			return account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
		}
	}
	return account{}, errors.New("PostgreSQL does not run as root and there is no user postgres or nobody: run as an ordinary user")
}

// own gives path to the account.
func (a account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// reaches says whether the account may enter dir, going by the permissions of dir and its parents. Parts that do not exist
// yet are taken to be made open.
func (a account) reaches(dir string) bool {
	if a.credential == nil {
		return true
	}
	for {
		info, err := os.Stat(dir)
		if err == nil && !a.enters(info) {
			return false
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return false
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return true
		}
		dir = parent
	}
}

func (a account) enters(info os.FileInfo) bool {
	mode := info.Mode().Perm()
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case ok && st.Uid == a.credential.Uid:
		return mode&0o100 != 0
	case ok && st.Gid == a.credential.Gid:
		return mode&0o010 != 0
	default:
		return mode&0o001 != 0
	}
}

// reachable returns the first of dirs that the account can enter.
func (a account) reachable(dirs ...string) (string, error) {
	for _, dir := range dirs {
		if dir != "" && a.reaches(dir) {
			return dir, nil
		}
	}
	return "", fmt.Errorf("none of %q can be entered by the user that PostgreSQL runs as: set TMPDIR to a folder that all may enter", dirs)
}
