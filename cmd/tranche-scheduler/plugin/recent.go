// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// recent is a set of objects that are remembered for a while.
type recent struct {
	mutex sync.Mutex
	uids  sets.Set[types.UID]
}

// maxRemembered bounds what is remembered of objects that may be long gone.
const maxRemembered = 1000

func (r *recent) add(uid types.UID) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.uids == nil || r.uids.Len() >= maxRemembered {
		r.uids = sets.New[types.UID]()
	}
	r.uids.Insert(uid)
}

func (r *recent) has(uid types.UID) bool {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.uids.Has(uid)
}
