// SPDX-License-Identifier: Apache-2.0

// Package config renders the configuration files and command lines of the
// cluster's components. It is pure: the same settings give the same text.
package config
