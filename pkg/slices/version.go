// SPDX-License-Identifier: Apache-2.0

package slices

import (
	"regexp"
	"strings"
)

// unknownVersion is published where the hardware did not tell: lower than any
// version, so that a selector that asks for a least version passes it over.
const unknownVersion = "0.0.0"

// printedVersion finds up to three numbers. They have at most nine digits: more
// would be accepted by the API server but fail every selector.
var printedVersion = regexp.MustCompile(`^v?(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?(?:[^\d].*)?$`)

// semver makes a semantic version of a version as drivers print it:
// "580.65.06" is 580.65.6 and "13.0" is 13.0.0. What follows the third number is
// dropped: as a pre-release ("-grid") it would sort below the release it names.
func semver(printed string) string {
	m := printedVersion.FindStringSubmatch(strings.TrimSpace(printed))
	if m == nil {
		return unknownVersion
	}
	numbers := make([]string, 0, 3)
	for _, n := range m[1:] {
		n = strings.TrimLeft(n, "0")
		if n == "" {
			n = "0"
		}
		numbers = append(numbers, n)
	}
	return strings.Join(numbers, ".")
}
