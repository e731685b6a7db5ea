// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var (
	errLine   = errors.New("line is not understood")
	errNoEnum = errors.New("no enum cudaError_enum")
)

// lists are the symbols of real drivers.
type lists struct {
	exported []string // by any of them, sorted
	newest   []string // those of 13.x only
}

// lines are a file's lines without comments.
func lines(path string) ([]string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read list: %w", err)
	}
	var all []string
	scanner := bufio.NewScanner(bytes.NewReader(content))
	for scanner.Scan() {
		if line := scanner.Text(); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all, scanner.Err()
}

func readLists(dir string) (lists, error) {
	var all lists
	for _, driver := range []string{"470", "535", "550", "13"} {
		symbols, err := lines(filepath.Join(dir, "symbols-libcuda-"+driver+".txt"))
		if err != nil {
			return lists{}, err
		}
		all.exported = append(all.exported, symbols...)
		if driver == "13" {
			all.newest = symbols
		}
	}
	slices.Sort(all.exported)
	all.exported = slices.Compact(all.exported)
	return all, nil
}

// answer is one answer of cuGetProcAddress: to name, asked with a version of at
// least since.
type answer struct {
	name      string
	since     int
	perThread bool // asked with the flag for per-thread default streams
	symbol    string
}

// profiles are the drivers, in the order of their bits in the generated table.
var profiles = []string{"470", "535", "550", "580"}

var answerLine = regexp.MustCompile(`^(\w+) flags=([02]) since=(\d+) -> (\w+)$`)

// readAnswers returns each answer with the bits of the profiles that give it.
func readAnswers(dir, since string, all lists) (map[answer]uint, error) {
	answers := make(map[answer]uint)
	for bit, profile := range profiles[:3] {
		rows, err := lines(filepath.Join(dir, "gpa-table-"+profile+".txt"))
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			found := answerLine.FindStringSubmatch(row)
			if found == nil {
				return nil, fmt.Errorf("%w: %s", errLine, row)
			}
			version, err := strconv.Atoi(found[3])
			if err != nil {
				return nil, fmt.Errorf("read version of %s: %w", row, err)
			}
			a := answer{name: found[1], since: version, perThread: found[2] == "2", symbol: found[4]}
			answers[a] |= 1 << bit
			if profile == "550" { // a driver goes on giving what the one before it gave
				answers[a] |= 1 << (bit + 1)
			}
		}
	}
	return answers, addNewest(answers, since, all)
}

// addNewest adds what the profile 580 gives besides.
func addNewest(answers map[answer]uint, since string, all lists) error {
	rows, err := lines(since)
	if err != nil {
		return err
	}
	for _, row := range rows {
		fields := strings.Split(row, "\t")
		if len(fields) != 3 || !slices.Contains(all.newest, fields[0]) {
			return fmt.Errorf("%w: %s", errLine, row)
		}
		version, err := strconv.Atoi(fields[2])
		if err != nil {
			return fmt.Errorf("read version of %s: %w", fields[0], err)
		}
		perThread := fields[0]
		if slices.Contains(all.newest, fields[0]+"_ptsz") {
			perThread = fields[0] + "_ptsz"
		}
		answers[answer{name: fields[1], since: version, symbol: fields[0]}] |= 1 << 3
		answers[answer{name: fields[1], since: version, perThread: true, symbol: perThread}] |= 1 << 3
	}
	return nil
}

// result is one value of CUresult.
type result struct {
	name  string
	value int
}

var (
	resultEnum  = regexp.MustCompile(`(?s)typedef enum cudaError_enum \{(.*?)\} CUresult;`)
	resultValue = regexp.MustCompile(`(CUDA_\w+) = (\d+)`)
)

func readResults(path string) ([]result, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read constants: %w", err)
	}
	enum := resultEnum.FindSubmatch(content)
	if enum == nil {
		return nil, fmt.Errorf("%w in %s", errNoEnum, path)
	}
	var results []result
	for _, found := range resultValue.FindAllStringSubmatch(string(enum[1]), -1) {
		value, err := strconv.Atoi(found[2])
		if err != nil {
			return nil, fmt.Errorf("read value of %s: %w", found[1], err)
		}
		results = append(results, result{name: found[1], value: value})
	}
	return results, nil
}
