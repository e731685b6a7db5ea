// SPDX-License-Identifier: Apache-2.0

// Package guarantee tells the owners of claims what their shares were promised of a
// card's compute and what they got, in the status of the claim: a ShareStatus in
// status.devices[].data of each share.
//
// A write costs the API server as much as any other, and there may be a hundred
// shares on each of a thousand nodes. So a claim is looked at twice a minute, at a
// time of its own; it is written when its shares wanted compute and their figures
// are not what they were: at once where a lot has changed, else after five minutes;
// and a node writes one claim a second at most in the long run. What happens between
// is in the metrics.
//
// Each write is a server-side apply of our own entries, so the conditions that others
// set in them, and the entries of other drivers, stay as they are.
//
// Keeper owns what was measured and written last; all of it happens in the goroutine
// that calls Run.
package guarantee
