package journal_test

import (
	"testing"

	"turnkeeper/storage/storagetest"
)

func TestMain(m *testing.M) { storagetest.Main(m) }
