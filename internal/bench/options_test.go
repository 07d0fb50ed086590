package bench

import (
	"reflect"
	"testing"
)

// A figure with 0 turns is not measured.
func TestNoTurns(t *testing.T) {
	b := &bench{Options: Options{}.withDefaults()}
	var r Report
	if err := b.measureIdle(t.Context(), &r); err != nil {
		t.Error(err)
	}
	if err := b.measureWatched(t.Context(), &r); err != nil {
		t.Error(err)
	}
	if err := b.measureThroughput(t.Context(), &r); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(r, Report{}) {
		t.Errorf("%+v", r)
	}
}
