package pg

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Infinite times of Postgres have no place in a time.Time, and a row with one could not be read. They are read as the
// times below, which JSON can hold too. No function of the schema writes them, but an administrator may.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 1, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// finiteTimes reads infinite times as finite ones on a connection.
func finiteTimes(_ context.Context, conn *pgx.Conn) error {
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID,
		Codec: finiteCodec{&pgtype.TimestamptzCodec{}}})
	return nil
}

type finiteCodec struct{ *pgtype.TimestamptzCodec }

// PlanScan returns a plan that reads infinite times as finite ones.
func (c finiteCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	plan := c.TimestamptzCodec.PlanScan(m, oid, format, target)
	if plan == nil || format != pgtype.BinaryFormatCode {
		return plan
	}
	return finitePlan{plan}
}

type finitePlan struct{ pgtype.ScanPlan }

// Scan scans a time in the binary format: microseconds since 2000.
func (p finitePlan) Scan(src []byte, target any) error {
	const size = 8
	if len(src) == size {
		switch int64(binary.BigEndian.Uint64(src)) { //nolint:gosec // two's complement
		case math.MaxInt64:
			src = micros(latest)
		case math.MinInt64:
			src = micros(earliest)
		}
	}
	return p.ScanPlan.Scan(src, target)
}

func micros(at time.Time) []byte {
	since := at.UnixMicro() - time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	return binary.BigEndian.AppendUint64(nil, uint64(since)) //nolint:gosec // two's complement
}
