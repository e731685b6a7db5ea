// SPDX-License-Identifier: Apache-2.0

// Package bench reports what a benchmark measured: a table for people, with
// each figure beside its target and beside the best that is known of others,
// and a JSON file for programs. Measuring is the callers' work; a figure that
// misses its target is reported, not an error, since a busy machine misses some.
// It holds no state.
package bench
