package tools_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"turnkeeper"
	"turnkeeper/tools"
)

// A tool is a struct with JSON tags and a function.
func Example() {
	type convert struct {
		Celsius float64 `json:"celsius" jsonschema:"temperature in degrees Celsius"`
		Unit    string  `json:"unit,omitempty" jsonschema:"fahrenheit (when left out) or kelvin"`
	}
	tool := tools.Func(
		tools.Spec{
			Name:        "convert_temperature",
			Description: "Converts a temperature.",
			Effect:      turnkeeper.EffectNone,
		},
		func(_ context.Context, args convert) (string, error) {
			switch args.Unit {
			case "", "fahrenheit":
				return fmt.Sprintf("%.1f °F", args.Celsius*9/5+32), nil
			case "kelvin":
				return fmt.Sprintf("%.2f K", args.Celsius+273.15), nil
			}
			return "", errors.New("the unit must be fahrenheit or kelvin")
		},
	)
	registry, err := tools.NewRegistry(tool)
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, raw := range []string{`{"celsius": 21}`, `{"celsius": "warm"}`, `{"celsius": 21, "unit": "rankine"}`} {
		args, fault := registry.Check("convert_temperature", raw)
		if fault != "" {
			fmt.Println(fault)
			continue
		}
		ending := tools.Execute(context.Background(), tool, tools.Call{Arguments: json.RawMessage(args.Canonical)},
			tools.ExecuteOptions{})
		fmt.Println(ending.Outcome, ending.Result.Text)
	}
	// Output:
	// succeeded 69.8 °F
	// invalid arguments: "celsius": is of type "string", it must be "number". Nothing was run. Send one JSON object that fits the tool's schema; required: "celsius".
	// failed tool error: the unit must be fahrenheit or kelvin
}
