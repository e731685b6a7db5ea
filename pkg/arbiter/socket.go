// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/tranche-dra/tranche/pkg/wire"
)

// newSocketName is the name of a socket until it listens. It then takes the
// place of one that was left behind, of which clients have either the old one or
// the new.
const newSocketName = wire.SocketName + ".new"

// socket is the one in a share's directory.
type socket struct {
	listener *net.UnixListener
	dir      *os.File
	id       fileID
}

// listen opens the socket of the share whose directory dir is, and owns dir. A
// path through the descriptor is short, however long the directory's is, and
// leads to this directory and no later one.
func listen(ctx context.Context, dir *os.File) (_ *socket, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open socket in %s: %w", dir.Name(), err), dir.Close())
		}
	}()
	fd := int(dir.Fd())
	if err := remove(fd, newSocketName); err != nil {
		return nil, err
	}
	var config net.ListenConfig
	opened, err := config.Listen(ctx, "unixpacket", procFD(dir, newSocketName))
	if err != nil {
		return nil, err
	}
	listener, ok := opened.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listener is a %T", opened), opened.Close())
	}
	listener.SetUnlinkOnClose(false)
	s := &socket{listener: listener, dir: dir}
	if err := s.publish(fd); err != nil {
		return nil, errors.Join(err, remove(fd, newSocketName), listener.Close())
	}
	return s, nil
}

// publish gives the socket its mode and its name. Whatever user a container has,
// it may connect: the permission is to have the directory.
func (s *socket) publish(fd int) error {
	if err := unix.Fchmodat(fd, newSocketName, 0o666, 0); err != nil {
		return fmt.Errorf("set mode: %w", err)
	}
	var info unix.Stat_t
	if err := unix.Fstatat(fd, newSocketName, &info, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	s.id = fileID{info.Dev, info.Ino}
	if err := unix.Renameat(fd, newSocketName, fd, wire.SocketName); err != nil {
		return fmt.Errorf("name socket: %w", err)
	}
	return nil
}

// close stops listening; remove takes the socket away as well, unless it is
// another one by now.
func (s *socket) close(remove bool) error {
	err := s.listener.Close()
	if remove {
		err = errors.Join(err, s.remove())
	}
	return errors.Join(err, s.dir.Close())
}

func (s *socket) remove() error {
	if !s.isIn(s.dir) {
		return nil
	}
	return remove(int(s.dir.Fd()), wire.SocketName)
}

// isIn tells whether the directory has this very socket.
func (s *socket) isIn(dir *os.File) bool {
	var info unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), wire.SocketName, &info, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && fileID{info.Dev, info.Ino} == s.id
}

func remove(dir int, name string) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// procFD is the path of a file in an open directory.
func procFD(dir *os.File, name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(dir.Fd())) + "/" + name
}
