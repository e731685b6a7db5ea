// SPDX-License-Identifier: Apache-2.0

package checkpoint

// Waiting is the number of locks that somebody in this process holds or waits for.
func (l *Locks) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.local)
}

// Cached is the number of records in the cache.
func (s *Store) Cached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.cache)
}
