// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// fact is something that a header says, as a constant expression of C.
type fact struct {
	expression string
	// names that the expression uses; a header that lacks one does not say it.
	names []string
}

// prototype of a function, as a type.
type prototype struct {
	name string
	kind string // "CUresult (*)(unsigned int)"
}

// header is what a file of cdi/abi says.
type header struct {
	facts      []fact
	prototypes []prototype
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	defines   = regexp.MustCompile(`(?m)^#define (\w+) (.*)$`)
	others    = regexp.MustCompile(`(?m)^(#.*|extern "C" \{)$`)
	tokens    = regexp.MustCompile(`\w+|[^\s\w]`)
	functions = regexp.MustCompile(`(?s)(?:^|\n)([a-zA-Z][\w ]*?[\s*]+)(\w+)\(([^()]*)\);`)
	numbers   = regexp.MustCompile(`^\(?-?(0x)?[0-9a-fA-F]+[uUlL]*\)?$|^\(1 << \d+\)$`)
)

// parse reads files that are written as those of cdi/abi are.
func parse(files ...string) (header, error) {
	var h header
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return header{}, fmt.Errorf("read header: %w", err)
		}
		text := comments.ReplaceAllString(string(raw), "")
		for _, match := range defines.FindAllStringSubmatch(text, -1) {
			if numbers.MatchString(strings.TrimSpace(match[2])) {
				h.facts = append(h.facts, fact{"(long long)" + match[1], match[1:2]})
			}
		}
		text = others.ReplaceAllString(text, "")
		for _, match := range functions.FindAllStringSubmatch(text, -1) {
			kind := fmt.Sprintf("%s(*)(%s)", match[1], match[3])
			h.prototypes = append(h.prototypes, prototype{match[2], strings.Join(strings.Fields(kind), " ")})
		}
		p := parser{tokens: tokens.FindAllString(text, -1)}
		if err := p.file(); err != nil {
			return header{}, fmt.Errorf("parse %s: %w", file, err)
		}
		h.facts = append(h.facts, p.facts...)
	}
	return h, nil
}

// parser knows what the headers of cdi/abi use of C.
type parser struct {
	tokens []string
	facts  []fact
}

func (p *parser) next() string {
	if len(p.tokens) == 0 {
		return ""
	}
	token := p.tokens[0]
	p.tokens = p.tokens[1:]
	return token
}

func (p *parser) peek(i int) string {
	if i >= len(p.tokens) {
		return ""
	}
	return p.tokens[i]
}

// file looks at type definitions, and passes over all else.
func (p *parser) file() error {
	for len(p.tokens) > 0 {
		if p.next() != "typedef" {
			continue
		}
		switch {
		case p.opensBody() && p.peek(0) == "enum":
			p.skipTo("{")
			p.enumerators()
			p.size(p.next())
		case p.opensBody():
			p.skipTo("{")
			fields := p.fields("")
			name := p.next()
			if name == "" {
				return fmt.Errorf("a structure has no end near %v", p.tokens)
			}
			p.size(name)
			for _, field := range fields {
				p.field(name, field)
			}
		default:
			p.alias()
		}
	}
	return nil
}

// opensBody tells whether what follows is struct, union or enum with a body.
func (p *parser) opensBody() bool {
	return slices.Contains([]string{"struct", "union", "enum"}, p.peek(0)) && (p.peek(1) == "{" || p.peek(2) == "{")
}

func (p *parser) skipTo(token string) {
	for len(p.tokens) > 0 && p.next() != token {
		continue
	}
}

func (p *parser) enumerators() {
	for p.peek(0) != "}" && p.peek(0) != "" {
		name := p.next()
		p.facts = append(p.facts, fact{"(long long)" + name, []string{name}})
		for p.peek(0) != "," && p.peek(0) != "}" && p.peek(0) != "" {
			p.next()
		}
		if p.peek(0) == "," {
			p.next()
		}
	}
	p.next()
}

// fields reads up to the end of a body, and returns the paths of its fields.
func (p *parser) fields(prefix string) []string {
	var paths []string
	for p.peek(0) != "}" && p.peek(0) != "" {
		if p.opensBody() {
			p.skipTo("{")
			inner := p.fields("")
			if p.peek(0) != ";" {
				name := p.next()
				paths = append(paths, prefix+name)
				for i := range inner {
					inner[i] = name + "." + inner[i]
				}
			}
			for _, path := range inner {
				paths = append(paths, prefix+path)
			}
			p.skipTo(";")
			continue
		}
		for _, name := range p.declarators() {
			paths = append(paths, prefix+name)
		}
	}
	p.next()
	return paths
}

// declarators returns the names of "type *a, b[3];".
func (p *parser) declarators() []string {
	var (
		names []string
		last  string
		depth int
	)
	for {
		token := p.next()
		switch {
		case token == ";" || token == "":
			return append(names, last)
		case token == "," && depth == 0:
			names = append(names, last)
		case token == "[" || token == "(":
			depth++
		case token == "]" || token == ")":
			depth--
		case depth == 0 && identifier.MatchString(token):
			last = token
		}
	}
}

var identifier = regexp.MustCompile(`^[A-Za-z_]\w*$`)

// alias reads "typedef X Y;" and "typedef X (*Y)(...);"
func (p *parser) alias() {
	name := ""
	for token := p.next(); token != ";" && token != ""; token = p.next() {
		if token == "(" && p.peek(0) == "*" {
			name = p.peek(1)
			p.skipTo(";")
			break
		}
		if identifier.MatchString(token) {
			name = token
		}
	}
	p.size(name)
}

func (p *parser) size(name string) {
	p.facts = append(p.facts, fact{fmt.Sprintf("(long long)sizeof(%s)", name), []string{name}})
}

func (p *parser) field(name, path string) {
	names := append([]string{name}, strings.Split(path, ".")...)
	p.facts = append(p.facts,
		fact{fmt.Sprintf("(long long)offsetof(%s, %s)", name, path), names},
		fact{fmt.Sprintf("(long long)sizeof(((%s *)0)->%s)", name, path), names})
}
