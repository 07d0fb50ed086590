package core_test

import (
	"testing"

	"turnkeeper/tests/internal/env"
)

func TestMain(m *testing.M) { env.Main(m) }
