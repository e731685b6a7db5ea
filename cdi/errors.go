// SPDX-License-Identifier: Apache-2.0

package cdi

import "errors"

var (
	// ErrDirectoryGone says that the CDI directory this process has open was
	// deleted on the host. A process in a container cannot get the new one:
	// it must end, so that it is started again with the directory of today.
	ErrDirectoryGone = errors.New("directory was deleted on the host: restart this process to use the new one")

	// ErrVersion says that a share.json was written by a newer release whose
	// fields may mean something else.
	ErrVersion = errors.New("contract version is newer than this program")

	// ErrUnsupported says that there are no driver files for cards of a vendor.
	ErrUnsupported = errors.New("not supported yet")

	// ErrName says that a claim's UID or a share's key cannot be a file name.
	ErrName = errors.New("not usable as a file name")
)
