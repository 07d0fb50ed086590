package cel

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/interpreter"

	"turnkeeper/internal/arguments"
)

// view returns arguments as rules see them, or why rules cannot see them.
func view(text []byte) (args map[string]any, why string) {
	value, err := arguments.Parse(string(text))
	if err != nil {
		return nil, "the arguments cannot be read: " + err.Error()
	}
	plain, exact := value.Plain()
	if !exact {
		return nil, "the arguments have a number that is no 64-bit integer, and has more digits than a 64-bit float"
	}
	args, ok := plain.(map[string]any)
	if !ok {
		return nil, "the arguments are not a JSON object"
	}
	return args, ""
}

// readsArguments reports whether a rule refers to the arguments.
func readsArguments(rule *cel.Ast) bool {
	for _, reference := range rule.NativeRep().ReferenceMap() {
		if reference.Name == "args" {
			return true
		}
	}
	return false
}

// checkLiterals refuses a rule with a double that is not exactly the number that its author wrote, or that an int would compare with
// as with another number. CEL itself refuses integers out of range.
func checkLiterals(source string, rule *cel.Ast) (err error) {
	text := []rune(source)
	native := rule.NativeRep()
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.LiteralKind || err != nil {
			return
		}
		double, ok := e.AsLiteral().(types.Double)
		if !ok {
			return
		}
		if d := math.Abs(float64(double)); d == math.Trunc(d) && d >= maxExactInt {
			err = fmt.Errorf("the rule has the double %g, which stands for several integers; write it without a point or exponent", double)
			return
		}
		at, known := native.SourceInfo().GetOffsetRange(e.ID())
		if !known || int(at.Start) > len(text) {
			err = errors.New("the rule has a double whose text cannot be found")
			return
		}
		written := numberAt(string(text[at.Start:]))
		if value, bad := arguments.Parse(written); bad != nil || !value.Equal(number(float64(double))) {
			err = fmt.Errorf("the rule has the number %s, which has more digits than a 64-bit float; shorten it", written)
		}
	}))
	return err
}

// maxExactInt is the first integer that the double of another integer equals.
const maxExactInt = 1 << 53

// numberAt returns the number at the start of a text, as JSON.
func numberAt(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("0123456789.eE+-", r) })
	if end < 0 {
		end = len(text)
	}
	written := text[:end]
	for i, r := range written { // a sign is part of the number only at its start and after its exponent
		if i > 0 && strings.ContainsRune("+-", r) && !strings.ContainsRune("eE", rune(written[i-1])) {
			written = written[:i]
			break
		}
	}
	sign, digits := "", written
	if rest, negative := strings.CutPrefix(written, "-"); negative {
		sign, digits = "-", rest
	}
	if strings.HasPrefix(digits, ".") {
		digits = "0" + digits
	}
	if whole := strings.TrimLeft(digits, "0"); whole == "" || whole[0] < '0' || whole[0] > '9' {
		digits = "0" + whole
	} else {
		digits = whole
	}
	return sign + digits
}

// number returns the number that the shortest text of a double stands for.
func number(double float64) arguments.Value {
	value, err := arguments.Parse(strconv.FormatFloat(double, 'e', -1, 64))
	if err != nil {
		return arguments.Value{}
	}
	return value
}

// exactConversions makes double(x) an error if the double stands for several integers.
func exactConversions(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if call, ok := i.(interpreter.InterpretableCall); ok && call.Function() == "double" {
		return exactDouble{call}, nil
	}
	return i, nil
}

type exactDouble struct{ interpreter.InterpretableCall }

// Exec evaluates the conversion.
func (e exactDouble) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	converted := e.InterpretableCall.Exec(frame)
	if d, ok := converted.(types.Double); ok && math.Abs(float64(d)) >= maxExactInt {
		return types.NewErr("double(): %g stands for several integers", float64(d))
	}
	return converted
}

// Eval evaluates the conversion.
func (e exactDouble) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, e.Exec)
}
