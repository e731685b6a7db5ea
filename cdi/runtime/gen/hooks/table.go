// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is the name of the table in cdi/runtime.
const File = "hooks.tsv"

// Library is one of the two libraries that the runtime stands in front of.
type Library string

// The libraries.
const (
	CUDA Library = "cuda"
	NVML Library = "nvml"
)

// Class says what a function does to the card, and so what the runtime does
// with a call of it.
type Class string

// The classes. All but Pass are hooked: the runtime exports a wrapper.
const (
	Allocate Class = "allocate"
	Free     Class = "free"
	Launch   Class = "launch"
	Query    Class = "query"
	Pass     Class = "pass"
)

// handlerReal marks a pass that the runtime calls itself.
const handlerReal = "real"

// Parameter of a C function.
type Parameter struct {
	Type string
	Name string
}

// Row is one symbol of the table.
type Row struct {
	Symbol  string
	Library Library
	Class   Class
	// Base is the name by which cuGetProcAddress gives the symbol, from version
	// Since on; empty for NVML and for passes.
	Base  string
	Since int
	// Handler is the name of the hand-written function without "hook_"; empty for passes
	// and where Around is set.
	Handler string
	// Around is the kind of treatment where the wrapper calls the real function itself,
	// AroundArgs are the parameters that the treatment looks at, and constants.
	Around     string
	AroundArgs []string
	// Real: the runtime calls the real function of a pass.
	Real bool
	// Parameters are those of the C prototype, as far as it is known.
	Parameters []Parameter
	Reason     string
	Line       int
}

// Hooked tells whether the runtime exports a wrapper for the symbol.
func (r Row) Hooked() bool { return r.Class != Pass }

// Table is the whole of hooks.tsv, in its order.
type Table []Row

// Of returns the rows of one library.
func (t Table) Of(library Library) Table {
	return slices.Collect(func(yield func(Row) bool) {
		for _, row := range t {
			if row.Library == library && !yield(row) {
				return
			}
		}
	})
}

// Hooked returns the rows that have a wrapper.
func (t Table) Hooked() Table {
	return slices.DeleteFunc(slices.Clone(t), func(row Row) bool { return !row.Hooked() })
}

// Lookup finds a symbol.
func (t Table) Lookup(symbol string) (Row, bool) {
	i := slices.IndexFunc(t, func(row Row) bool { return row.Symbol == symbol })
	if i < 0 {
		return Row{}, false
	}
	return t[i], true
}

// Load reads the table from a file.
func Load(path string) (Table, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open table of hooks: %w", err)
	}
	defer file.Close() //nolint:errcheck // only read
	table, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return table, nil
}

// Read reads a table. The error names every line that is wrong.
func Read(r io.Reader) (Table, error) {
	var (
		table Table
		errs  []error
	)
	scanner := bufio.NewScanner(r)
	for line := 1; scanner.Scan(); line++ {
		text := scanner.Text()
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		row, err := parseRow(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", line, err))
			continue
		}
		row.Line = line
		table = append(table, row)
	}
	errs = append(errs, scanner.Err(), table.check())
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return table, nil
}

const (
	columns         = 8
	requiredColumns = 7
)

var (
	identifier    = regexp.MustCompile(`^[A-Za-z_]\w*$`)
	parameterForm = regexp.MustCompile(`^(.*[\s*])(\w+)$`)
	constant      = regexp.MustCompile(`^(?:[0-9]+|[A-Z][A-Z_]+)$`)
	aroundForm    = regexp.MustCompile(`^around:([a-z_]+)(?:\(([^()]+)\))?$`)
)

func parseRow(text string) (Row, error) {
	fields := strings.Split(text, "\t")
	if len(fields) < requiredColumns || len(fields) > columns {
		return Row{}, fmt.Errorf("%d columns, not %d or %d", len(fields), requiredColumns, columns)
	}
	row := Row{Symbol: fields[0], Library: Library(fields[1]), Class: Class(fields[2])}
	if len(fields) == columns {
		row.Reason = fields[7]
	}
	if !identifier.MatchString(row.Symbol) {
		return Row{}, fmt.Errorf("%q is not a symbol", row.Symbol)
	}
	if !slices.Contains([]Library{CUDA, NVML}, row.Library) {
		return Row{}, fmt.Errorf("%s: unknown library %q", row.Symbol, row.Library)
	}
	if !slices.Contains([]Class{Allocate, Free, Launch, Query, Pass}, row.Class) {
		return Row{}, fmt.Errorf("%s: unknown class %q", row.Symbol, row.Class)
	}
	err := errors.Join(row.parseBase(fields[3], fields[4]), row.parseParameters(fields[6]), row.parseHandler(fields[5]))
	if err != nil {
		return Row{}, fmt.Errorf("%s: %w", row.Symbol, err)
	}
	return row, nil
}

func (r *Row) parseBase(base, since string) error {
	if !r.Hooked() || r.Library == NVML {
		if base != "-" || since != "-" {
			return errors.New("base and since are for hooked functions of CUDA")
		}
		return nil
	}
	version, err := strconv.Atoi(since)
	if err != nil || !identifier.MatchString(base) {
		return fmt.Errorf("base %q since %q: want a name and a version", base, since)
	}
	r.Base, r.Since = base, version
	return nil
}

func (r *Row) parseParameters(text string) error {
	if text == "-" || text == "void" {
		if text == "-" && r.Hooked() {
			return errors.New("a hooked function needs its parameters")
		}
		return nil
	}
	for part := range strings.SplitSeq(text, ", ") {
		match := parameterForm.FindStringSubmatch(part)
		if match == nil {
			return fmt.Errorf("parameter %q: want a type and a name", part)
		}
		r.Parameters = append(r.Parameters, Parameter{Type: match[1], Name: match[2]})
	}
	return nil
}

func (r *Row) parseHandler(text string) error {
	switch {
	case !r.Hooked() && text == "-":
		return nil
	case !r.Hooked() && text == handlerReal:
		r.Real = true
		return nil
	case !r.Hooked():
		return fmt.Errorf("handler %q on a pass: want - or %s", text, handlerReal)
	case identifier.MatchString(text) && text != handlerReal:
		r.Handler = text
		return nil
	}
	match := aroundForm.FindStringSubmatch(text)
	if match == nil {
		return fmt.Errorf("handler %q: want a name or around:KIND(PARAMETER, ...)", text)
	}
	if r.Library == NVML {
		return errors.New("around is for functions of CUDA")
	}
	r.Around = match[1]
	if match[2] != "" {
		r.AroundArgs = strings.Split(strings.ReplaceAll(match[2], " ", ""), ",")
	}
	for _, arg := range r.AroundArgs {
		if !constant.MatchString(arg) && !slices.ContainsFunc(r.Parameters, func(p Parameter) bool { return p.Name == arg }) {
			return fmt.Errorf("around: no parameter is called %s", arg)
		}
	}
	return nil
}

// check looks at what concerns several rows.
func (t Table) check() error {
	var errs []error
	lines := map[string]int{}
	families := map[string]Row{}
	for _, row := range t {
		if before, ok := lines[row.Symbol]; ok {
			errs = append(errs, fmt.Errorf("line %d: %s is there already, in line %d", row.Line, row.Symbol, before))
		}
		lines[row.Symbol] = row.Line
		if row.Handler == "" {
			continue
		}
		first, ok := families[row.Handler]
		if !ok {
			families[row.Handler] = row
		} else if !slices.Equal(first.Parameters, row.Parameters) || first.Library != row.Library {
			errs = append(errs, fmt.Errorf("line %d: %s and %s have one handler and other parameters", row.Line, row.Symbol, first.Symbol))
		}
	}
	return errors.Join(errs...)
}
