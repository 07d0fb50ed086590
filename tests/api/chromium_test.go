package api_test

import (
	"context"
	"os/exec"
	"testing"

	"github.com/chromedp/chromedp"

	"turnkeeper/tests/internal/env"
)

// newBrowser starts a headless Chromium and returns the context of its first tab.
func newBrowser(ctx context.Context, t testing.TB) context.Context {
	t.Helper()
	if out, err := exec.Command(env.Path("scripts/need"), "chromium:chromium").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.WSURLReadTimeout(env.Patience))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	ctx, closeBrowser := chromedp.NewContext(ctx)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("Chromium does not start: %v", err)
	}
	t.Cleanup(func() { closeBrowser(); stop() })
	return ctx
}
