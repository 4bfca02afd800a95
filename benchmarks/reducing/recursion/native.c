struct node { const struct node *parent; double x, y; };

double position(const struct node *node, int axis)
{
    if (!node)
        return 0;
    double above = position(node->parent, axis);
    return above * 0.5 + (axis ? node->y : node->x);
}
