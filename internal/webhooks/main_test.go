package webhooks_test

import (
	"testing"

	"turnkeeper/internal/testrun"
)

func TestMain(m *testing.M) { testrun.Main(m) }
