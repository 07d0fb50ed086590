// Package cel compiles rules about tool calls written in CEL, the Common Expression Language (https://cel.dev).
//
// A rule is one expression over
//
//	tool, agent, user, conversation, effect, trigger   strings; user is empty without one
//	args                                         the arguments of the call, a map
//	labels                                       the labels of the call, a list of strings
//
// whose value is allow, ask or deny. ask("...") and deny("...") give a reason:
//
//	args.amount > 500 ? ask("the amount is above 500") : allow
//
// Numbers are exact. A whole number of the arguments is an int, or a uint if only that has room for it. Another number
// is a double if a double stands for exactly that number, and no other: 19.99 is one. A rule that reads arguments with
// any other number, such as one with 20 digits after the point, cannot be evaluated. A rule with such a number, or one
// that converts an int to a double that is another number, is refused or cannot be evaluated.
package cel

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/ext"

	"turnkeeper/policy"
)

// maxSource is the maximum length of a rule in bytes. maxCost limits its evaluation in units of cel-go, which are
// roughly operations. A rule that costs more asks.
const (
	maxSource = 4000
	maxCost   = 100_000
)

// Compile compiles a rule. It is a policy.Compiler.
func Compile(source string) (policy.Rule, error) {
	if len(source) > maxSource {
		return nil, fmt.Errorf("the rule has %d bytes: at most %d are allowed", len(source), maxSource)
	}
	env, err := environment()
	if err != nil {
		return nil, err
	}
	ast, issues := env.Compile(source)
	if err := issues.Err(); err != nil {
		return nil, fmt.Errorf("the rule is not valid CEL: %s", firstLine(err))
	}
	if kind := ast.OutputType(); !kind.IsExactType(cel.StringType) {
		return nil, fmt.Errorf("the rule returns %s: it must return allow, ask or deny", kind)
	}
	if err := checkLiterals(source, ast); err != nil {
		return nil, err
	}
	program, err := env.Program(ast, cel.CostLimit(maxCost), cel.CustomDecoratorV2(exactConversions))
	if err != nil {
		return nil, fmt.Errorf("the rule cannot be run: %w", err)
	}
	return &rule{source, readsArguments(ast), program}, nil
}

// environment declares the variables and functions of rules. allow, ask and deny are strings, and ask("...") is "ask:
// ...".
func environment() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable("labels", cel.ListType(cel.StringType)),
		cel.CrossTypeNumericComparisons(true), // a JSON number may be whole or not
		ext.Strings(),
	}
	for _, name := range []string{"tool", "agent", "user", "conversation", "effect", "trigger"} {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	for _, v := range []policy.Verdict{policy.Allow, policy.Ask, policy.Deny} {
		options = append(options, cel.Constant(string(v), cel.StringType, types.String(v)))
	}
	for _, v := range []policy.Verdict{policy.Ask, policy.Deny} {
		options = append(options, cel.Function(string(v), cel.Overload(string(v)+"_string", []*cel.Type{cel.StringType},
			cel.StringType,
			cel.UnaryBinding(func(reason ref.Val) ref.Val {
				return types.String(string(v) + ": " + fmt.Sprint(reason.Value()))
			}))))
	}
	return cel.NewEnv(options...)
}

// firstLine returns the first line of a cel-go error. The other lines show the position in the source.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimPrefix(line, "ERROR: <input>:")
}

type rule struct {
	source  string
	reads   bool // the arguments
	program cel.Program
}

// Decide evaluates the rule.
func (r *rule) Decide(c policy.Call) policy.Decision {
	args := map[string]any{}
	if r.reads && len(c.Arguments) > 0 {
		var why string
		if args, why = view(c.Arguments); why != "" {
			return r.failed(why)
		}
	}
	labels := make([]string, len(c.Labels))
	for i, m := range c.Labels {
		labels[i] = string(m.Label)
	}
	out, _, err := r.program.Eval(map[string]any{
		"tool": c.Tool, "agent": c.Agent, "user": c.User, "conversation": c.Conversation, "effect": string(c.Effect),
		"trigger": string(c.Trigger), "args": args, "labels": labels,
	})
	if err != nil {
		return r.failed(err.Error())
	}
	text, _ := out.Value().(string)
	verdict, reason, _ := strings.Cut(text, ": ")
	switch v := policy.Verdict(verdict); v {
	case policy.Allow, policy.Ask, policy.Deny:
		return policy.Decision{Verdict: v, Rule: r.source, Reason: reason}
	default:
		return r.failed(fmt.Sprintf("it returned %q", text))
	}
}

// failed returns the decision if a rule cannot be evaluated, for example because it reads a missing argument. It asks:
// allowing would open a gap, and denying would stop work that a person may want.
func (r *rule) failed(why string) policy.Decision {
	return policy.Decision{Verdict: policy.Ask, Rule: r.source, Reason: "the rule could not be evaluated: " + why}
}
