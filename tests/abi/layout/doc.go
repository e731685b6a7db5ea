// SPDX-License-Identifier: Apache-2.0

// Package layout compares the declarations of cdi/abi with those of another
// header: sizes of types, offsets and sizes of fields, values of constants,
// prototypes of functions. What only one of them has is passed over. It needs a C
// compiler, and keeps no state.
package layout
