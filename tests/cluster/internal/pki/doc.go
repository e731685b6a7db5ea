// SPDX-License-Identifier: Apache-2.0

// Package pki issues the certificates, keys and kubeconfigs of one cluster.
//
// They live as long as a test does: one authority signs for everything, and
// nothing is rotated.
package pki
