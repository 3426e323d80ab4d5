package script_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/redislock/redislock/internal/testing/spec"
)

// keysOf says which arguments of a command of Redis are keys: all; the first; every other one, perhaps after a count; or none.
var keysOf = map[string]string{
	"DEL": "all", "EXISTS": "all", "MGET": "all",
	"GET": "first", "PEXPIRE": "first", "PEXPIREAT": "first", "PTTL": "first", "SET": "first", "TYPE": "first",
	"ZADD": "first", "ZCARD": "first", "ZCOUNT": "first", "ZRANGE": "first", "ZRANGEBYSCORE": "first", "ZREM": "first",
	"ZREMRANGEBYSCORE": "first", "ZREVRANGE": "first", "ZREVRANGEBYSCORE": "first", "ZSCORE": "first",
	"MSETNX": "pairs", "MSETEX": "pairs",
	"INFO": "none", "PUBLISH": "none", "PUBSUB": "none", "TIME": "none",
}

// undeclared returns what a script passes to Redis as a key although it may come from elsewhere than KEYS. It ignores scopes:
// a name counts as a key only if everything is one that the script ever puts into a variable of that name.
func undeclared(text string) []string {
	chunk, err := parse.Parse(strings.NewReader(text), "script")
	Expect(err).NotTo(HaveOccurred())
	s := &source{values: map[string][]ast.Expr{}, indices: map[string][]ast.Expr{}, params: map[string][]string{}}
	visit(reflect.ValueOf(chunk), s.bind)
	visit(reflect.ValueOf(chunk), s.bindArguments)
	visit(reflect.ValueOf(chunk), s.check)
	return s.found
}

// source is what is known of the text of a script.
type source struct {
	values  map[string][]ast.Expr // by name: what is put into the variable, or into its fields
	indices map[string][]ast.Expr // by name: the indices at which something is put into it
	params  map[string][]string   // by name of a function
	found   []string
}

// visit calls f for each node below v.
func visit(v reflect.Value, f func(node any)) {
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			if v.Kind() == reflect.Pointer {
				f(v.Interface())
			}
			visit(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			visit(v.Index(i), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				visit(v.Field(i), f)
			}
		}
	}
}

var unknown ast.Expr = &ast.Comma3Expr{} // stands for what may be anything

func at(list []ast.Expr, i int) ast.Expr {
	switch {
	case i < len(list):
		return list[i]
	case len(list) > 0:
		if _, is := list[len(list)-1].(*ast.FuncCallExpr); is { // may return several values
			return unknown
		}
	}
	return &ast.NilExpr{}
}

func (s *source) bind(node any) {
	switch n := node.(type) {
	case *ast.LocalAssignStmt:
		for i, name := range n.Names {
			if f, is := at(n.Exprs, i).(*ast.FunctionExpr); is {
				s.params[name] = f.ParList.Names
			}
			s.values[name] = append(s.values[name], at(n.Exprs, i))
		}
	case *ast.AssignStmt:
		for i, left := range n.Lhs {
			name, value := root(left), at(n.Rhs, i)
			if field, is := left.(*ast.AttrGetExpr); is {
				s.indices[name] = append(s.indices[name], field.Key)
				if i > 0 { // a key and its value, for MSETNX
					name += " value"
				}
			}
			s.values[name] = append(s.values[name], value)
		}
	case *ast.NumberForStmt:
		s.values[n.Name] = append(s.values[n.Name], unknown)
	case *ast.GenericForStmt:
		for i, name := range n.Names {
			value := unknown
			if call, is := n.Exprs[0].(*ast.FuncCallExpr); is && len(call.Args) == 1 {
				switch list := root(call.Args[0]); {
				case root(call.Func) == "ipairs" && i == 1, root(call.Func) == "pairs" && i == 1:
					value = &ast.AttrGetExpr{Object: call.Args[0], Key: unknown}
				case root(call.Func) == "pairs" && i == 0:
					value = &ast.IdentExpr{Value: list + " index"}
				}
			}
			s.values[name] = append(s.values[name], value)
		}
	}
}

func (s *source) bindArguments(node any) {
	call, is := node.(*ast.FuncCallExpr)
	if !is {
		return
	}
	for i, name := range s.params[root(call.Func)] {
		s.values[name] = append(s.values[name], at(call.Args, i))
	}
}

// root returns the name of the variable in which an expression begins; "" for another kind of expression.
func root(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.AttrGetExpr:
		return root(e.Object)
	}
	return ""
}

// command returns the command of a call of Redis; "" for another call.
func command(call *ast.FuncCallExpr) string {
	name := root(call.Func)
	if field, is := call.Func.(*ast.AttrGetExpr); is && name == "redis" {
		name = field.Key.(*ast.StringExpr).Value
	}
	if name != "call" && name != "pcall" {
		return ""
	}
	if text, is := call.Args[0].(*ast.StringExpr); is {
		return text.Value
	}
	return "a computed command"
}

func (s *source) check(node any) {
	call, is := node.(*ast.FuncCallExpr)
	if !is || command(call) == "" {
		return
	}
	name, args := command(call), call.Args[1:]
	switch keysOf[name] {
	case "all":
		for _, key := range args {
			s.want(name, key)
		}
	case "first":
		s.want(name, args[0])
	case "pairs":
		s.want(name, args[len(args)-1])
	case "none":
	default:
		s.found = append(s.found, name+": keysOf does not know it")
	}
}

func (s *source) want(command string, key ast.Expr) {
	if call, is := key.(*ast.FuncCallExpr); is && root(call.Func) == "unpack" {
		key = call.Args[0]
	}
	if !s.isKey(key, map[string]bool{}) {
		s.found = append(s.found, command+" "+root(key))
	}
}

// isKey reports whether the value of an expression, or each field of it, comes from KEYS or is nil. seen holds the names that
// are being looked at.
func (s *source) isKey(e ast.Expr, seen map[string]bool) bool {
	switch e := e.(type) {
	case *ast.NilExpr, *ast.FalseExpr:
		return true
	case *ast.LogicalOpExpr:
		return s.isKey(e.Rhs, seen) && (e.Operator == "and" || s.isKey(e.Lhs, seen))
	case *ast.TableExpr:
		return len(e.Fields) == 0
	case *ast.StringExpr:
		return e.Value == "NX" // the condition of MSETEX, behind the keys
	case *ast.AttrGetExpr:
		return s.isKey(e.Object, seen)
	case *ast.IdentExpr:
		if seen[e.Value] {
			return true
		}
		seen[e.Value] = true
		values := s.values[e.Value]
		if list, is := strings.CutSuffix(e.Value, " index"); is {
			values = s.indices[list]
		}
		for _, value := range values {
			if !s.isKey(value, seen) {
				return false
			}
		}
		return len(values) > 0 || e.Value == "KEYS"
	}
	return false
}

var _ = Describe("Every key that a script touches is one of its KEYS:", func() {
	for _, name := range spec.Scripts() {
		name = strings.TrimSuffix(name, ".lua")
		if name == "line" || name == "marker" || name == "note" || name == "shared" { // they are part of the others
			continue
		}
		It(name, func() {
			Expect(undeclared(spec.Source(name))).To(BeEmpty())
			Expect(undeclared(spec.Guarded(name))).To(BeEmpty())
		})
	}

	It("those of the tool", func() {
		files, err := filepath.Glob(spec.Path("cmd/redislock/internal/*/*.lua"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			text, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			Expect(undeclared(string(text))).To(BeEmpty(), file)
		}
	})

	DescribeTable("otherwise this spec says so", func(text string, want ...string) {
		Expect(undeclared(text)).To(Equal(want))
	},
		Entry("a name", `redis.call('GET', 'a')`, "GET "),
		Entry("an argument", `redis.pcall('SET', ARGV[1], 1)`, "SET ARGV"),
		Entry("part of a key", `redis.call('DEL', KEYS[1], KEYS[2] .. ':line')`, "DEL "),
		Entry("a variable", `local key = KEYS[1] if ARGV[1] then key = ARGV[1] end redis.call('GET', key)`, "GET key"),
		Entry("a choice", `local key = ARGV[1] or KEYS[1] redis.call('GET', key)`, "GET key"),
		Entry("a list", `local all = {} all[1] = ARGV[1] redis.call('MGET', unpack(all))`, "MGET all"),
		Entry("what a loop reads", `for _, key in ipairs(ARGV) do redis.call('GET', key) end`, "GET key"),
		Entry("what a key holds", `local next = redis.call('GET', KEYS[1]) redis.call('GET', next)`, "GET next"),
		Entry("a parameter", `local function f(key) redis.call('GET', key) end f(KEYS[1]) f(ARGV[1])`, "GET key"),
		Entry("an index", `local held = {} held[ARGV[1]] = 1 for key, v in pairs(held) do redis.call('GET', key) end`, "GET key"),
		Entry("one of several for MSETNX", `local args = {} args[1], args[2] = ARGV[1], 'v' redis.call('MSETNX', unpack(args))`,
			"MSETNX args"),
		Entry("a command that nobody has looked at", `redis.call('SORT', KEYS[1])`, "SORT: keysOf does not know it"),
		Entry("a computed command", `redis.call(ARGV[1], KEYS[1])`, "a computed command: keysOf does not know it"),
	)
})
