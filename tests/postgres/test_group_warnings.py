"""Warnings about group models that learnt nothing."""


def test_groups_whose_models_are_worse_than_the_mean_are_told(server):
    server.sql("""
        SELECT setseed(0.5);
        CREATE TABLE sides AS SELECT (ARRAY['near', 'far', 'gone'])[1 + i % 3] AS side, x,
            3 * x + CASE WHEN i % 3 > 0 THEN 100 + i % 3 ELSE 0 END AS y
        FROM (SELECT i, (random() - 0.5)::float8 AS x FROM generate_series(0, 899) i) t
    """)
    call = "SELECT * FROM corgipile.train('sides', 'linear', 'x', 'y', by => 'side', epochs => 2, learning_rate => {})"
    _, said = server.said(call.format("1e-4"))
    assert (
        'the models of 2 of 3 groups of "side" are no better than the mean of their labels, "far", "gone": R2 of the '
        "first is -"
    ) in said
    assert "no better than the mean of their labels" not in server.said(call.format("0.5"))[1]
    server.sql("DROP TABLE sides")
