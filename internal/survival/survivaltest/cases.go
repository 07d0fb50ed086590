// Package survivaltest has the cases of the rule of survival levels, which Go and the schema must agree on.
package survivaltest

import "turnkeeper/internal/survival"

// Cases are cases of survival.Next.
var Cases = []struct {
	Name        string
	Before      survival.Level
	Left, Limit int64
	Want        survival.Level
}{
	{"no limit", survival.Normal, -5, 0, survival.Normal},
	{"the limit was taken away", survival.Critical, 0, 0, survival.Normal},
	{"a new day", "", 1000, 1000, survival.Normal},
	{"all is left", survival.Normal, 1000, 1000, survival.Normal},
	{"20 %", survival.Normal, 200, 1000, survival.Normal},
	{"under 20 %", survival.Normal, 199, 1000, survival.Low},
	{"5 %", survival.Normal, 50, 1000, survival.Low},
	{"under 5 %", survival.Normal, 49, 1000, survival.Critical},
	{"nothing is left", survival.Normal, 0, 1000, survival.Critical},
	{"overdrawn", survival.Normal, -1, 1000, survival.Critical},
	{"low stays under 25 %", survival.Low, 249, 1000, survival.Low},
	{"low ends at 25 %", survival.Low, 250, 1000, survival.Normal},
	{"low at 5 %", survival.Low, 50, 1000, survival.Low},
	{"low becomes critical", survival.Low, 49, 1000, survival.Critical},
	{"critical stays under 10 %", survival.Critical, 99, 1000, survival.Critical},
	{"critical ends at 10 %", survival.Critical, 100, 1000, survival.Low},
	{"critical stays low under 25 %", survival.Critical, 249, 1000, survival.Low},
	{"critical ends at once at 25 %", survival.Critical, 250, 1000, survival.Normal},
	{"the limit was raised", survival.Critical, 9_000, 10_000, survival.Normal},
	{"the limit was lowered", survival.Normal, 10, 300, survival.Critical},
	{"a budget of one call", survival.Normal, 1, 1, survival.Normal},
	{"a budget of one call is used up", survival.Normal, 0, 1, survival.Critical},
	{"the largest limit", survival.Normal, 199_999_999_999, 1_000_000_000_000, survival.Low},
}
