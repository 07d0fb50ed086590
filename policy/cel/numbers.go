package cel

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"

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

// checkLiterals refuses a rule with a double that is not exactly the number that its author wrote, or that an int would
// compare with as with another number. CEL itself refuses integers out of range.
func checkLiterals(source string, rule *cel.Ast) (err error) {
	text := []rune(source)
	native := rule.NativeRep()
	ast.PostOrderVisit(native.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if double, ok := e.AsLiteral().(types.Double); ok {
			at, _ := native.SourceInfo().GetOffsetRange(e.ID())
			err = errors.Join(err, checkDouble(float64(double), string(text[min(int(at.Start), len(text)):])))
		}
	}))
	return err
}

// maxExactInt is the first integer that the double of another integer equals. All doubles from there on are whole.
const maxExactInt = 1 << 53

var doubleText = regexp.MustCompile(`^-?[0-9]*\.?[0-9]*([eE][+-]?[0-9]+)?`)

// checkDouble checks a double of a rule, whose text begins with it.
func checkDouble(double float64, text string) error {
	if math.Abs(double) >= maxExactInt {
		return fmt.Errorf(
			"the rule has the double %g, which stands for several integers; write it without a point or exponent",
			double)
	}
	written := doubleText.FindString(text)
	exact, _ := new(big.Rat).SetString(strconv.FormatFloat(double, 'e', -1, 64))
	if meant, ok := new(big.Rat).SetString(written); !ok || meant.Cmp(exact) != 0 {
		return fmt.Errorf("the rule has the number %s, which has more digits than a 64-bit float; shorten it", written)
	}
	return nil
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
	if d, _ := converted.(types.Double); math.Abs(float64(d)) >= maxExactInt {
		return types.NewErr("double(): %g stands for several integers", float64(d))
	}
	return converted
}

// Eval evaluates the conversion.
func (e exactDouble) Eval(vars interpreter.Activation) ref.Val {
	return interpreter.EvalActivation(vars, e.Exec)
}
