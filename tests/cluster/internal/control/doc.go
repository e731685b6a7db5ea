// SPDX-License-Identifier: Apache-2.0

// Package control lets the command that runs in a cluster stop, start, restart
// and kill the cluster's components, over HTTP on a unix socket.
//
//	POST /v1/{verb}/{component}   verb is start, stop, restart or kill; answers once it is done
//	GET  /v1/status               every component's state, as JSON
//
// A failed operation answers 4xx or 5xx with the reason as plain text.
package control
