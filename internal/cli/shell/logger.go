package shell

import (
	"io"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"turnkeeper/internal/config"
)

// NewLogger returns a logger to w that masks the secrets of cfg.
func NewLogger(cfg *config.Config, w io.Writer) *zap.Logger {
	level, err := zapcore.ParseLevel(cfg.LogLevel)
	if err != nil {
		level = zapcore.InfoLevel
	}
	core := zapcore.NewCore(encoder(cfg.LogFormat), zapcore.Lock(zapcore.AddSync(w)), level)
	return zap.New(cfg.Masker().WrapCore(core))
}

func encoder(format string) zapcore.Encoder {
	if format == "json" {
		c := zap.NewProductionEncoderConfig()
		c.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		c.EncodeDuration = zapcore.StringDurationEncoder
		return zapcore.NewJSONEncoder(c)
	}
	c := zap.NewDevelopmentEncoderConfig()
	c.EncodeTime = zapcore.TimeEncoderOfLayout(time.TimeOnly + ".000")
	c.EncodeDuration = zapcore.StringDurationEncoder
	c.EncodeLevel = zapcore.CapitalLevelEncoder
	return zapcore.NewConsoleEncoder(c)
}
