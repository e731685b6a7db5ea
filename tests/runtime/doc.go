// SPDX-License-Identifier: Apache-2.0

// Package runtime tests the sharing runtime as containers have it: its libraries in
// front of the simulated driver, with the real arbiter, judged by the truth of the
// simulated cards. The tests have the build tag native, because they need what
// make native builds; make test-runtime runs them, and make test-sanitizers
// runs those again whose programs a sanitizer can watch.
package runtime
