// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/tranche-dra/tranche/pkg/card"
	"github.com/tranche-dra/tranche/pkg/placement"
	"github.com/tranche-dra/tranche/pkg/share"
)

// Bounds of what is read: more than any machine has, and small enough that sums
// cannot overflow.
const (
	maxCards  = 1024
	maxAmount = 1 << 40
)

// slotsPerCard is what tranche-node publishes unless it is told otherwise.
const slotsPerCard = 16

// PositionError says where in a file something is wrong. Line and Column count from 1,
// the column in bytes.
type PositionError struct {
	File         string
	Line, Column int
	Err          error
}

func (e *PositionError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %v", e.File, e.Line, e.Column, e.Err)
}

func (e *PositionError) Unwrap() error { return e.Err }

// ErrColumn: the header lacks a column that cannot be done without.
var ErrColumn = errors.New("column is missing")

// ReadNodes reads a list of nodes. Columns are found by the header, in any order,
// and others are passed over: gpu is needed, the number of cards; name or sn,
// cpu_milli and memory_mib of the host, model and gpu_memory_mib of each card may
// be left out. file is for errors.
func ReadNodes(r io.Reader, file string) ([]placement.Node, error) {
	t, err := open(r, file, "gpu")
	if err != nil {
		return nil, err
	}
	var nodes []placement.Node
	for t.next() {
		n := placement.Node{Name: t.text("name", "sn")}
		n.CPU = placement.MilliCPU(t.number("cpu_milli", maxAmount))
		n.Memory = card.MiB(t.number("memory_mib", maxAmount))
		n.FreeCPU, n.FreeMemory = n.CPU, n.Memory
		cards := t.number("gpu", maxCards)
		total := placement.Amount{
			Compute: placement.WholeCompute, Offline: placement.WholeCompute,
			Memory: card.MiB(t.number("gpu_memory_mib", maxAmount)), Slots: slotsPerCard,
		}
		model := t.text("model")
		for range cards {
			n.Cards = append(n.Cards, placement.Card{Name: strconv.Itoa(len(n.Cards)), Model: model, Total: total, Free: total})
		}
		nodes = append(nodes, n)
	}
	return nodes, t.err
}

// ReadTasks reads a list of tasks: the kinds, and for each task which kind it is.
// Columns are found by the header, in any order, and others are passed over:
// num_gpu and gpu_milli are needed; cpu_milli and memory_mib of the host,
// gpu_memory_mib of each card, gpu_spec (models that will do, divided by |) and
// class (online, offline) may be left out. A task of less than 1000 gpu_milli
// takes a share of each of its cards, others take them whole. file is for errors.
func ReadTasks(r io.Reader, file string) (kinds []placement.Demand, tasks []int, err error) {
	t, err := open(r, file, "num_gpu", "gpu_milli")
	if err != nil {
		return nil, nil, err
	}
	known := map[string]int{}
	for t.next() {
		d := t.demand()
		key := fmt.Sprintf("%+v", d)
		k, found := known[key]
		if !found {
			k = len(kinds)
			known[key] = k
			kinds = append(kinds, d)
		}
		tasks = append(tasks, k)
	}
	return kinds, tasks, t.err
}

// table is a CSV file with a header, read row by row. The first error stays, and
// everything after it is empty.
type table struct {
	file    string
	csv     *csv.Reader
	columns map[string]int
	row     []string
	err     error
}

func open(r io.Reader, file string, needed ...string) (*table, error) {
	t := &table{file: file, csv: csv.NewReader(r), columns: map[string]int{}}
	t.csv.ReuseRecord = true
	header, err := t.csv.Read()
	if errors.Is(err, io.EOF) {
		return nil, &PositionError{file, 1, 1, fmt.Errorf("the file is empty: a header with %s is needed", strings.Join(needed, ", "))}
	}
	if err != nil {
		return nil, t.broken(err)
	}
	for i, name := range header {
		// Spreadsheets put a byte order mark in front of the first name.
		name = strings.TrimSpace(strings.TrimPrefix(name, "\ufeff"))
		if _, twice := t.columns[name]; twice {
			line, column := t.csv.FieldPos(i)
			return nil, &PositionError{file, line, column, fmt.Errorf("column %q is there twice", name)}
		}
		t.columns[name] = i
	}
	for _, name := range needed {
		if _, found := t.columns[name]; !found {
			return nil, &PositionError{file, 1, 1, fmt.Errorf("%w: %s; the header has %s", ErrColumn, name, strings.Join(header, ", "))}
		}
	}
	return t, nil
}

func (t *table) broken(err error) error {
	if parse, is := errors.AsType[*csv.ParseError](err); is {
		return &PositionError{t.file, parse.Line, parse.Column, parse.Err}
	}
	return fmt.Errorf("read %s: %w", t.file, err)
}

func (t *table) next() bool {
	if t.err != nil {
		return false
	}
	row, err := t.csv.Read()
	switch {
	case errors.Is(err, io.EOF):
		return false
	case err != nil:
		t.err = t.broken(err)
		return false
	}
	t.row = row
	return true
}

// text of the first of the columns that the file has.
func (t *table) text(names ...string) string {
	for _, name := range names {
		if i, found := t.columns[name]; found {
			return strings.Clone(strings.TrimSpace(t.row[i]))
		}
	}
	return ""
}

// number is 0 where the file has no such column or the cell is empty. Whole
// numbers may be written with a fraction of zero, as spreadsheets do.
func (t *table) number(name string, most int64) int64 {
	text := t.text(name)
	if text == "" {
		return 0
	}
	whole, fraction, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || strings.Trim(fraction, "0") != "" || n < 0 || n > most {
		t.fail(name, fmt.Errorf("%s is %q: a whole number from 0 to %d is right", name, text, most))
		return 0
	}
	return n
}

func (t *table) fail(name string, err error) {
	if t.err != nil {
		return
	}
	line, column := t.csv.FieldPos(t.columns[name])
	t.err = &PositionError{t.file, line, column, err}
}

func (t *table) demand() placement.Demand {
	d := placement.Demand{
		CPU:    placement.MilliCPU(t.number("cpu_milli", maxAmount)),
		Memory: card.MiB(t.number("memory_mib", maxAmount)),
	}
	cards := int(t.number("num_gpu", maxCards))
	if cards == 0 { // then the other columns of cards mean nothing
		return d
	}
	milli := placement.Milli(t.number("gpu_milli", int64(placement.WholeCompute))) //nolint:gosec // at most 1000
	if milli == 0 {
		t.fail("gpu_milli", fmt.Errorf("gpu_milli is %q for a task with num_gpu %d: 1 to %d thousandths of each card is right",
			t.text("gpu_milli"), cards, placement.WholeCompute))
	}
	part := placement.Part{Cards: cards, Class: t.class()}
	if milli == placement.WholeCompute {
		part.Whole = true
	} else {
		part.Amount = placement.Amount{Compute: milli, Memory: card.MiB(t.number("gpu_memory_mib", maxAmount))}
		if part.Class == share.Offline {
			part.Amount.Compute, part.Amount.Offline = 0, milli
		}
	}
	d.Parts = []placement.Part{part}
	for model := range strings.SplitSeq(t.text("gpu_spec"), "|") {
		if model = strings.TrimSpace(model); model != "" {
			d.Models = append(d.Models, model)
		}
	}
	slices.Sort(d.Models)
	d.Models = slices.Compact(d.Models)
	return d
}

func (t *table) class() share.Class {
	switch text := t.text("class"); text {
	case "", string(share.NoClass):
		return share.NoClass
	case string(share.Online), string(share.Offline):
		return share.Class(text)
	default:
		t.fail("class", fmt.Errorf("class is %q: online, offline or none is right", text))
		return share.NoClass
	}
}

// Open reads a trace from two files.
func Open(nodes, tasks string) (*Trace, error) {
	var t Trace
	err := readFile(nodes, func(r io.Reader) (err error) {
		t.Nodes, err = ReadNodes(r, nodes)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = readFile(tasks, func(r io.Reader) (err error) {
		t.Kinds, t.Tasks, err = ReadTasks(r, tasks)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &t, nil
}

func readFile(name string, read func(io.Reader) error) error {
	file, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("open trace: %w", err)
	}
	defer file.Close() //nolint:errcheck // it was only read
	return read(file)
}
