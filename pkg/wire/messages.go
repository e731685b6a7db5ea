// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	// MessageMagic begins every message.
	MessageMagic uint32 = 0x544d5243
	// ReasonSize is the room for a reason, its terminating zero included.
	ReasonSize = 160
)

// Role is what a client wants to be.
type Role uint32

// Roles: see the header.
const (
	RoleProbe    Role = 0
	RoleProcess  Role = 1
	RoleObserver Role = 2
	RoleAgain    Role = 3
)

// String is the role's name.
func (r Role) String() string {
	names := [...]string{"probe", "process", "observer", "again"}
	if int(r) < len(names) {
		return names[r]
	}
	return fmt.Sprintf("role %d", uint32(r))
}

// Status is what the arbiter answers. Negative ones are refusals.
type Status int32

// Statuses: see the header.
const (
	OK       Status = 0
	Moved    Status = 1
	EVersion Status = -1
	EEnded   Status = -2
	EFull    Status = -3
	EInvalid Status = -4
	EMeasure Status = -5
	EDenied  Status = -6
)

// String is the status's name.
func (s Status) String() string {
	switch s {
	case OK:
		return "ok"
	case Moved:
		return "moved"
	case EVersion:
		return "version"
	case EEnded:
		return "ended"
	case EFull:
		return "full"
	case EInvalid:
		return "invalid"
	case EMeasure:
		return "unmeasurable"
	case EDenied:
		return "denied"
	}
	return fmt.Sprintf("status %d", int32(s))
}

// Op is what a request asks for.
type Op uint32

// Ops: see the header.
const (
	OpMeasure    Op = 1
	OpMeasureAll Op = 2
)

// Hello is a client's first message.
type Hello struct {
	Magic    uint32
	Version  uint32
	Role     Role
	NSPID    int32
	Slot     uint32
	Reserved uint32
	Nonce    uint64
}

// Welcome answers a Hello.
type Welcome struct {
	Magic    uint32
	Version  uint32
	Status   Status
	Slot     uint32
	Nonce    uint64
	HostPID  int32
	Reserved uint32
	Reason   [ReasonSize]byte
}

// Request is what a process asks for later.
type Request struct {
	Magic  uint32
	Op     Op
	ID     uint64
	Settle uint64
}

// Reply answers a Request.
type Reply struct {
	Magic    uint32
	Status   Status
	ID       uint64
	Used     uint64
	Implicit uint64
}

// Sizes of messages in bytes.
const (
	HelloSize   = 32
	WelcomeSize = 32 + ReasonSize
	RequestSize = 24
	ReplySize   = 32
)

// Message is the type of a message.
type Message interface {
	Hello | Welcome | Request | Reply
}

// Encode gives the bytes of a message.
func Encode[M Message](m M) []byte {
	data, err := binary.Append(nil, binary.NativeEndian, m)
	if err != nil {
		panic(err) // all fields have a size
	}
	return data
}

// Decode reads a message, which must have exactly its size and begin with
// MessageMagic.
func Decode[M Message](data []byte) (M, error) {
	var m M
	if want := binary.Size(m); len(data) != want {
		return m, fmt.Errorf("read message: %d bytes, not %d", len(data), want)
	}
	if magic := binary.NativeEndian.Uint32(data); magic != MessageMagic {
		return m, fmt.Errorf("read message: it begins with %#x, not %#x", magic, MessageMagic)
	}
	if _, err := binary.Decode(data, binary.NativeEndian, &m); err != nil {
		return m, fmt.Errorf("read message: %w", err)
	}
	return m, nil
}

// HelloVersion is the version of a message that may be a Hello of another
// version, whose other fields are not known.
func HelloVersion(data []byte) (version uint32, ok bool) {
	if len(data) < 8 || binary.NativeEndian.Uint32(data) != MessageMagic {
		return 0, false
	}
	return binary.NativeEndian.Uint32(data[4:]), true
}

// Reason puts a text into the field of a Welcome, shortened where it must be.
func Reason(text string) (field [ReasonSize]byte) {
	copy(field[:ReasonSize-1], text)
	return field
}

// Text is what a terminated field says.
func Text(field []byte) string {
	text, _, _ := bytes.Cut(field, []byte{0})
	return string(text)
}
