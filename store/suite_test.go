package store_test

import (
	"context"
	"testing"

	storagetesting "k8s.io/apiserver/pkg/storage/testing"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// suite is upstream's suite for storage.Interface, as far as it applies. See notApplicable.
var suite = map[string]func(context.Context, *testing.T, *env){
	"Create": func(ctx context.Context, t *testing.T, e *env) { storagetesting.RunTestCreate(ctx, t, e, e.validate) },
	"CreateWithKeyExist": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestCreateWithKeyExist(ctx, t, e)
	},
	"Get": func(ctx context.Context, t *testing.T, e *env) { storagetesting.RunTestGet(ctx, t, e) },
	"KeySchema": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestKeySchema(ctx, t, e)
	},

	"UnconditionalDelete": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestUnconditionalDelete(ctx, t, e)
	},
	"ConditionalDelete": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestConditionalDelete(ctx, t, e)
	},
	"DeleteWithSuggestion": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteWithSuggestion(ctx, t, e)
	},
	"DeleteWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteWithSuggestionAndConflict(ctx, t, e)
	},
	"DeleteWithConflict": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteWithConflict(ctx, t, e)
	},
	"DeleteWithSuggestionOfDeletedObject": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteWithSuggestionOfDeletedObject(ctx, t, e)
	},
	"ValidateDeletionWithSuggestion": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestValidateDeletionWithSuggestion(ctx, t, e)
	},
	"ValidateDeletionWithOnlySuggestionValid": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestValidateDeletionWithOnlySuggestionValid(ctx, t, e)
	},
	"PreconditionalDeleteWithSuggestion": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestPreconditionalDeleteWithSuggestion(ctx, t, e)
	},
	"PreconditionalDeleteWithOnlySuggestionPass": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass(ctx, t, e)
	},
	"DeleteWithSuggestionAndMissingExpectedTransformOrDecodeError": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError(ctx, t, e)
	},

	"List": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestList(ctx, t, e, e.compact, false, nil)
	},
	"ConsistentList": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestConsistentList(ctx, t, e, e.increase, false, true, false)
	},
	"GetListNonRecursive": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGetListNonRecursive(ctx, t, e.increase, e)
	},
	"GetListRecursivePrefix": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGetListRecursivePrefix(ctx, t, e)
	},
	"ListContinuation": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestListContinuation(ctx, t, e, noCalls)
	},
	"ListPaginationRareObject": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestListPaginationRareObject(ctx, t, e, noCalls)
	},
	"ListContinuationWithFilter": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestListContinuationWithFilter(ctx, t, e, noCalls)
	},
	"ListInconsistentContinuation": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestListInconsistentContinuation(ctx, t, e, e.compact)
	},
	"ListResourceVersionMatch": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestListResourceVersionMatch(ctx, t, untransformed{e})
	},
	"ListPaging": func(ctx context.Context, t *testing.T, e *env) { storagetesting.RunTestListPaging(ctx, t, e) },
	"NamespaceScopedList": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestNamespaceScopedList(ctx, t, e)
	},
	"CompactRevision": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestCompactRevision(ctx, t, e, e.increase, e.compact)
	},
	"Stats": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestStats(ctx, t, e, exampleCodec, identity.NewEncryptCheckTransformer(), false)
	},
	"StatsWithSizes": func(ctx context.Context, t *testing.T, e *env) {
		if err := e.EnableResourceSizeEstimation(func(context.Context) ([]string, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		storagetesting.RunTestStats(ctx, t, e, exampleCodec, identity.NewEncryptCheckTransformer(), true)
	},

	"GuaranteedUpdate": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGuaranteedUpdate(ctx, t, e, e.validate)
	},
	"GuaranteedUpdateChecksStoredData": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGuaranteedUpdateChecksStoredData(ctx, t, e)
	},
	"GuaranteedUpdateWithConflict": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGuaranteedUpdateWithConflict(ctx, t, e)
	},
	"GuaranteedUpdateWithSuggestionAndConflict": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict(ctx, t, e)
	},

	"Watch": func(ctx context.Context, t *testing.T, e *env) { storagetesting.RunTestWatch(ctx, t, e) },
	"WatchFromZero": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchFromZero(ctx, t, e, e.compact)
	},
	"DeleteTriggerWatch": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDeleteTriggerWatch(ctx, t, e)
	},
	"WatchFromNonZero": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchFromNonZero(ctx, t, e)
	},
	"DelayedWatchDelivery": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestDelayedWatchDelivery(ctx, t, e)
	},
	"WatchContextCancel": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchContextCancel(ctx, t, e)
	},
	"WatcherTimeout": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatcherTimeout(ctx, t, e)
	},
	"WatchDeleteEventObjectHaveLatestRV": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV(ctx, t, e)
	},
	"WatchInitializationSignal": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchInitializationSignal(ctx, t, e)
	},
	"ClusterScopedWatch": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestClusterScopedWatch(ctx, t, e)
	},
	"NamespaceScopedWatch": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestNamespaceScopedWatch(ctx, t, e)
	},
	"WatchDispatchBookmarkEvents": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, e, true)
	},
	"OptionalWatchBookmarksWithCorrectResourceVersion": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunTestOptionalWatchBookmarksWithCorrectResourceVersion(ctx, t, e)
	},
}

// gated sets feature gates of the process, so its tests run one by one.
var gated = map[string]func(context.Context, *testing.T, *env){
	"SendInitialEventsBackwardCompatibility": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunSendInitialEventsBackwardCompatibility(ctx, t, e)
	},
	"WatchSemantics": func(ctx context.Context, t *testing.T, e *env) { storagetesting.RunWatchSemantics(ctx, t, e) },
	"WatchSemanticInitialEventsExtended": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunWatchSemanticInitialEventsExtended(ctx, t, e)
	},
	"WatchListMatchSingle": func(ctx context.Context, t *testing.T, e *env) {
		storagetesting.RunWatchListMatchSingle(ctx, t, e)
	},
}

// noCalls: upstream counts reads of etcd here; there is no store below this one.
func noCalls(*testing.T, uint64, uint64) {}

// notApplicable are the functions of upstream's suite that are not run, each with its reason.
var notApplicable = map[string]string{
	"RunTestCreateWithTTL":           "no TTLs: what ends by itself is ended by a leader room",
	"RunTestGuaranteedUpdateWithTTL": "no TTLs: what ends by itself is ended by a leader room",

	"RunTestTransformationFailure":                                      oncePerRow,
	"RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError": oncePerRow,
	"RunTestDeleteExpectedTransformOrDecodeError":                       oncePerRow + "; see TestAnUnreadableObjectCanBeDeletedOnRequest",
	"RunTestGetListWithErrorAggregation":                                oncePerRow,
	"RunTestGetListWithoutErrorAggregation":                             oncePerRow,
	"RunTestWatchError":                                                 oncePerRow,
	"RunTestWatchWithUnsafeDelete":                                      oncePerRow,
	"RunWatchErrorIsBlockingFurtherEvents":                              oncePerRow,

	"RunOptionalTestProgressNotify": "optional, for a watch cache on top, and there is none",
}

const oncePerRow = "needs a row that was readable to become unreadable; a row is immutable"

//nolint:paralleltest // see gated
func TestUpstreamSuiteUnderFeatureGates(t *testing.T) {
	for where, newEnv := range environments {
		for name, run := range gated {
			t.Run(where+"/"+name, func(t *testing.T) { run(t.Context(), t, newEnv(t)) })
		}
	}
}

func TestUpstreamSuite(t *testing.T) {
	t.Parallel()
	for where, newEnv := range environments {
		for name, run := range suite {
			t.Run(where+"/"+name, func(t *testing.T) {
				t.Parallel()
				run(t.Context(), t, newEnv(t))
			})
		}
	}
}
